"""How many examples the property tests try.

`TICKPROOF_PROFILE` chooses: `dev` (the default) is quick, `ci` tries the same examples in every
run, `soak` tries many more, new ones each time. What a random run finds is kept in `.hypothesis`
and tried first from then on.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

CI_EXAMPLES = 210
_EXAMPLES = {"dev": 15, "ci": CI_EXAMPLES, "soak": 800}


def load() -> None:
    """Register the profiles and load the one that the environment names."""
    for name, examples in _EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            print_blob=True,
            derandomize=name == "ci",
            # Queries over streams are large examples; they are not slow for lack of care.
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
    chosen = current()
    if chosen not in _EXAMPLES:
        raise ValueError(f"TICKPROOF_PROFILE={chosen!r}: use one of {', '.join(_EXAMPLES)}")
    settings.load_profile(chosen)


def current() -> str:
    """The name of the profile in use."""
    return os.environ.get("TICKPROOF_PROFILE", "") or "dev"


def share(fraction: float) -> settings:
    """Settings with a share of the profile's examples, for what takes longer or needs fewer."""
    return settings(max_examples=max(5, round(_EXAMPLES[current()] * fraction)))
