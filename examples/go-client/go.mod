module waltz.example/client

go 1.22
