module mpbond

go 1.26
