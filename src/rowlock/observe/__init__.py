"""What shows from outside how the queue works."""
