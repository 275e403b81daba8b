"""Other engines, judged on what they claim: see docs/peers.md."""
