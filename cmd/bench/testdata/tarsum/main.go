// Command tarsum lists the files of a tar archive with their checksums.
package main

import (
	"flag"
	"fmt"
	"os"

	"tarsum/report"
	"tarsum/sum"
)

func main() {
	format := flag.String("format", "text", "text or json")
	flag.Parse()
	if err := run(flag.Args(), *format); err != nil {
		fmt.Fprintln(os.Stderr, "tarsum:", err)
		os.Exit(1)
	}
}

func run(paths []string, format string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		files, err := sum.Archive(f)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := report.Write(os.Stdout, format, files); err != nil {
			return err
		}
	}
	return nil
}
