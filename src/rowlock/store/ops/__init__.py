"""The verbs. Each is written once, as a generator that yields steps and is sent rows."""
