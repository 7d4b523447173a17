// A server of HTTP/2 by Go's net/http, for the tests of our client.
//
// Usage: main CERTIFICATE KEY. It prints the port that it listens on, on 127.0.0.1, and serves until its input ends.
//
//	POST /echo     the body, as it was sent, and its size in a trailer
//	POST /fields   the request's fields as JSON
//	POST /hints    an interim response, and then the body
//	POST /reset    no response: the stream is reset
//	POST /leave    nothing more on this connection: GOAWAY
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Trailer", "X-Size")
	_, _ = w.Write(body)
	w.Header().Set("X-Size", fmt.Sprint(len(body)))
}

func fields(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.RequestURI, "authority": r.Host, "fields": r.Header, "protocol": r.Proto,
	})
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	server := &http.Server{Handler: mux, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 20}}
	mux.HandleFunc("POST /echo", echo)
	mux.HandleFunc("POST /fields", fields)
	mux.HandleFunc("POST /hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		echo(w, r)
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("POST /leave", func(w http.ResponseWriter, r *http.Request) {
		go func() { _ = server.Shutdown(context.Background()) }()
		time.Sleep(200 * time.Millisecond)
		echo(w, r)
	})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := server.ServeTLS(listener, os.Args[1], os.Args[2]); err != http.ErrServerClosed {
		panic(err)
	}
	select {}
}
