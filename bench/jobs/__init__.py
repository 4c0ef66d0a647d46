"""The hand-written contenders. Each is a script on its own: `python -m bench.jobs.<name> JOB.json`."""
