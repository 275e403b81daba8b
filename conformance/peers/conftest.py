"""These are run by the Pythons of other engines, and cannot be imported here."""

collect_ignore = ["flink_peer.py", "pathway_peer.py"]
