module samebit/models

go 1.26.0
