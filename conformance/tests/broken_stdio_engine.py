"""Engines behind a pipe that break in one way each; the first argument says which.

They claim `window` at the level final and answer every case with nothing, until they break.
"""

import json
import os
import sys
import time


def say(data):
    print(data if isinstance(data, str) else json.dumps(data), flush=True)


def nothing(request):
    return {"id": request["id"], "steps": [{"emitted": [], "watermark": "never"}]}


def flood(request):
    sys.stderr.write("chatter\n" * 200_000)
    say(nothing(request))


def half_a_line(request):
    sys.stdout.write('{"id": 1, "ste')
    sys.stdout.flush()


def half_a_line_and_the_end(request):
    half_a_line(request)
    sys.exit(0)


def crash(request):
    sys.stderr.write("Traceback: the wheels came off\n")
    sys.exit(3)


HELLO = {"name": "broken", "claims": {"operators": ["window"], "levels": ["final"]}}

GREETINGS = {
    "no hello": lambda: sys.exit("cannot find the engine's libraries"),
    "silent hello": lambda: time.sleep(60),
    "claims a typo": lambda: say({"name": "x", "claims": {"operators": ["windw"]}}),
    "claims nothing": lambda: say({"name": "x", "claims": {"operators": []}}),
    "no name": lambda: say({"claims": {}}),
    "logs first": lambda: (say("Starting engine ..."), say(HELLO)),
}
ANSWERS = {
    "fine": lambda request: say(nothing(request)),
    "flood": flood,
    "crash": crash,
    "killed": lambda request: os.kill(os.getpid(), 9),
    "hang": lambda request: time.sleep(60),
    "garbage": lambda request: say("done!"),
    "not an object": lambda request: say([1, 2]),
    "half a line": half_a_line,
    "half a line and the end": half_a_line_and_the_end,
    "two lines": lambda request: os.write(
        1, (json.dumps(nothing(request)) + "\n" + "x\n").encode()
    ),
    "wrong id": lambda request: say(nothing({"id": 99})),
    "no steps": lambda request: say({"id": request["id"]}),
    "unknown member": lambda request: say({**nothing(request), "stpes": []}),
    "bad row": lambda request: say({"id": request["id"], "steps": [{"emitted": [[0, 1, "x"]]}]}),
    "gives up": lambda request: say({"id": request["id"], "failure": "no such window"}),
    "crash once": lambda request: crash(request) if request["id"] == 2 else say(nothing(request)),
}


def main(mode):
    for line in sys.stdin:
        request = json.loads(line)
        if request["request"] == "hello":
            GREETINGS.get(mode, lambda: say(HELLO))()
            if mode == "never reads":
                time.sleep(60)
        else:
            ANSWERS[mode](request)


if __name__ == "__main__":
    main(sys.argv[1])
