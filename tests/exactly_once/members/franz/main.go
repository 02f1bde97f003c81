// What member.py does, with franz-go: transaction version 2 where the cluster has it. BOOTSTRAP NAME PARTITIONS ABORTS
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	bootstrap, name := os.Args[1], os.Args[2]
	partitions, err := strconv.Atoi(os.Args[3])
	must(name, err)
	aborts, err := strconv.ParseFloat(os.Args[4], 64)
	must(name, err)
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ClientID(name),
		kgo.ConsumerGroup("exactly-once"),
		kgo.ConsumeTopics("in"),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
		kgo.MetadataMinAge(250*time.Millisecond), // 5 s if it is not said: for so long it writes to a broker that is gone
	)
	must(name, err)
	// A member that cannot go on leaves its group first, as the others do; else all wait until its session is over. It is
	// asked for until it is done, as what the client asks by itself may go to the broker that is gone, once.
	leaving := func(step string, err error) {
		if err != nil {
			leave(session.Client())
			must(name, fmt.Errorf("%s: %w", step, err))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// The others begin with this. It ends what the one before left open; else that would be open until its time is up, and
	// nobody could read the offsets of the partitions in it, this one neither.
	_, _, err = session.Client().ProducerID(ctx)
	leaving("producer id", err)
	for ctx.Err() == nil {
		polling, done := context.WithTimeout(ctx, 50*time.Millisecond)
		fetches := session.PollRecords(polling, 100)
		done()
		if fetches.NumRecords() == 0 {
			continue
		}
		transaction(ctx, session, fetches, int32(partitions), leaving, rand.Float64() < aborts)
	}
	session.Close()
}

func transaction(ctx context.Context, session *kgo.GroupTransactSession, fetches kgo.Fetches, partitions int32, leaving func(string, error), takesBack bool) {
	leaving("begin", session.Begin())
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(each *kgo.Record) {
		text := []byte(fmt.Sprintf("%d:%d:%s", each.Partition, each.Offset, each.Value))
		session.Produce(ctx, &kgo.Record{Topic: "out-a", Partition: each.Partition, Value: text}, promise.Promise())
		session.Produce(ctx, &kgo.Record{Topic: "out-b", Partition: (each.Partition + 1) % partitions, Value: text}, promise.Promise())
	})
	wanted := kgo.TransactionEndTry(promise.Err() == nil && !takesBack)
	_, err := session.End(context.Background(), wanted)
	leaving("end", err)
}

func leave(client *kgo.Client) {
	id, _ := client.GroupMetadata()
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = "exactly-once"
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	request.Members = append(request.Members, member)
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	for ctx.Err() == nil {
		answer, err := request.RequestWith(ctx, client)
		if err == nil && answer.ErrorCode == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func must(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(3)
	}
}
