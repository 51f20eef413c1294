"""The built-in plugins, one module or package each, named as in the configuration."""
