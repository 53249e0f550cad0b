"""The site: settings and addresses."""
