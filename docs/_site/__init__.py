"""What the site needs beyond Sphinx's own extensions."""
