"""The verbs, each written once: generators that yield steps and are sent rows."""
