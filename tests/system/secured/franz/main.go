// Writes values to a topic and reads them in a group, with franz-go and a file of librdkafka's names. FILE TOPIC VALUE...
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	file, topic, values := os.Args[1], os.Args[2], os.Args[3:]
	settings := read(file)
	options := append(login(settings),
		kgo.SeedBrokers(strings.Split(settings["bootstrap.servers"], ",")...),
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	client, err := kgo.NewClient(options...)
	must(err)
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for _, value := range values {
		must(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
	}
	for seen := 0; seen < len(values); {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(each *kgo.Record) {
			fmt.Println(string(each.Value))
			seen++
		})
	}
	must(client.CommitUncommittedOffsets(ctx))
	client.Close()
}

func login(settings map[string]string) []kgo.Opt {
	authority, err := os.ReadFile(settings["ssl.ca.location"])
	must(err)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		must(errors.New("no certificate in ssl.ca.location"))
	}
	config := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	if path := settings["ssl.certificate.location"]; path != "" {
		shown, err := tls.LoadX509KeyPair(path, settings["ssl.key.location"])
		must(err)
		config.Certificates = []tls.Certificate{shown}
	}
	found := []kgo.Opt{kgo.DialTLSConfig(config)}
	if user := settings["sasl.username"]; user != "" {
		found = append(found, kgo.SASL(scram.Auth{User: user, Pass: settings["sasl.password"]}.AsSha512Mechanism()))
	}
	return found
}

func read(path string) map[string]string {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	found := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, is := strings.Cut(lines.Text(), "="); is && !strings.HasPrefix(key, "#") {
			found[key] = value
		}
	}
	must(lines.Err())
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
