"""The same small shop in three web frameworks."""
