"""What is measured, a file a kind of question."""
