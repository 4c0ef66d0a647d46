"""`make bench`: Penstock against hand-written jobs, every contender its own process, all measured from outside."""
