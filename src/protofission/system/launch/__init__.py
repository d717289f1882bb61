"""Launchers: who carries out independent pieces of work, on this machine or on a cluster."""
