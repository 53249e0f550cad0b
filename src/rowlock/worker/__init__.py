"""Engines that run user code."""
