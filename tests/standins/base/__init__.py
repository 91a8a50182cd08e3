"""What every stand-in is built on: boxes in which commands really run, scripted faults, the account of what was made, and the admin's routes."""
