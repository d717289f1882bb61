"""Run folders in, tables, figures and one page out."""
