"""Files, processes and optional libraries: what the package asks of the machine."""
