// `protect introspection` or `protect key-set`: an API that tells its callers who they are.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	verify := Verify(Introspect)
	if os.Args[1] == "key-set" {
		verify = VerifyByKeySet
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, TokenOf(r).User)
	})
	protect := Protect(verify, "orders")
	log.Fatal(http.Serve(listener, protect(mux)))
}
