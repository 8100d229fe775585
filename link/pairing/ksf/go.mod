module github.com/bytemare/ksf

go 1.26.0
