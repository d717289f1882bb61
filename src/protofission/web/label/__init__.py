"""The workbench in the browser: its server, its answers and its pages."""
