"""Integrations with frameworks and shims for other queues. Each is a module to import."""
