"""The embedded EC2: moto with a market, see `python -m local.ec2 --help`."""
