"""The workbench: labels, classes, sub-classes and clusters that a person changes, in a log."""
