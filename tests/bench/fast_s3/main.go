// An S3 in memory on loopback, for measurements: no account, no durability. It prints its address,
// and ends when its standard input is closed.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	go func() { // it ends with whoever started it
		buffer := make([]byte, 1)
		os.Stdin.Read(buffer)
		os.Exit(0)
	}()
	faker := gofakes3.New(s3mem.New(), gofakes3.WithoutVersioning())
	http.Serve(listener, faker.Server())
}
