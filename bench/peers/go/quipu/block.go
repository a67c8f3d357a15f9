package quipu

import "fmt"

// block is the body of a block during this read (8.4).
type block struct {
	source
	dictionary *dictionary
	messages   []Message
	// values counts the values of the lists that are not short.
	values int
}

// read reads all messages of a block with this header.
func (b *block) read(h header) error {
	for range int(h[offsetDefinitions]) {
		if err := b.dictionary.define(&b.source); err != nil {
			return err
		}
	}
	var all [KindUnion + 1][]*series
	for kind := range all {
		var err error
		if all[kind], err = b.series(Kind(kind), h.of(Kind(kind))); err != nil {
			return err
		}
	}
	counters, timers, gauges, unions := all[0], all[1], all[2], all[3]
	counterChanges, err := b.column(len(counters), "the changes of counters")
	if err != nil {
		return err
	}
	for i, of := range counters {
		of.last += change(counterChanges[i])
		b.messages = append(b.messages, Message{Kind: KindCounter, ID: of.id, Counter: of.last})
	}
	gaugeChanges, err := b.column(len(gauges), "the changes of gauges")
	if err != nil {
		return err
	}
	shapes, err := b.take(uint64(len(timers)), "the shapes of batch timers")
	if err != nil {
		return err
	}
	shapesEnd := b.at
	gaugeMessages, err := b.gauges(gauges, gaugeChanges, int(h[offsetExceptions]))
	if err != nil {
		return err
	}
	for i, of := range timers {
		m := Message{Kind: KindBatchTimer, ID: of.id}
		if m.Values, err = b.shaped(of, shapes[i], shapesEnd-len(shapes)+i); err != nil {
			return err
		}
		b.messages = append(b.messages, m)
	}
	b.messages = append(b.messages, gaugeMessages...)
	for _, of := range unions {
		m := Message{Kind: KindUnion, ID: of.id}
		if err := b.source.union(&m); err != nil {
			return err
		}
		if err := b.countValues(len(m.Values)); err != nil {
			return err
		}
		b.messages = append(b.messages, m)
	}
	return b.end("the end of the block after its last message")
}

// series reads the numbers of count series of a kind.
func (b *block) series(kind Kind, count int) ([]*series, error) {
	begin := b.at
	numbers, err := b.column(count, "the numbers of series")
	if err != nil {
		return nil, err
	}
	known := b.dictionary.series[kind]
	all := make([]*series, count)
	for i, number := range numbers {
		if number >= uint64(len(known)) {
			expected := fmt.Sprintf("numbers of the %d series of %v", len(known), kind)
			return nil, b.wrong(begin, expected, "%d", number)
		}
		all[i] = known[number]
	}
	return all, nil
}

// column reads a column of count numbers.
func (b *block) column(count int, what string) ([]uint64, error) {
	var numbers []uint64
	for len(numbers) < count {
		width, err := b.byte(what)
		if err != nil {
			return nil, err
		}
		if width > 64 || width > widestShort && width%8 != 0 {
			return nil, b.wrong(b.at-1, "a width of 0 to 31, 32, 40, 48, 56 or 64", "%d", width)
		}
		group := uint64(min(count-len(numbers), groupLength))
		bytes, err := b.take((group*uint64(width)+7)/8, what)
		if err != nil {
			return nil, err
		}
		for i := range group {
			number := uint64(0)
			if width > 0 {
				number = packed{bytes, uint64(width)}.at(i)
			}
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

// gauges reads the exceptions, and makes the messages of all gauges.
func (b *block) gauges(all []*series, changes []uint64, exceptions int) ([]Message, error) {
	var messages []Message
	usual := func(end int) {
		for i := len(messages); i < end; i++ {
			of := all[i]
			of.last += change(changes[i])
			value := quotient(of.last, of.places)
			messages = append(messages, Message{Kind: KindGauge, ID: of.id, Gauge: value})
		}
	}
	for range exceptions {
		begin := b.at
		index, err := b.byte("the index of a gauge")
		if err != nil {
			return nil, err
		}
		if int(index) < len(messages) || int(index) >= len(all) {
			expected := fmt.Sprintf("the index of a gauge, %d to %d", len(messages), len(all)-1)
			return nil, b.wrong(begin, expected, "%d", index)
		}
		usual(int(index))
		of := all[index]
		m := Message{Kind: KindGauge, ID: of.id}
		if b.left() > 0 && b.bytes[b.at] >= leadDouble && b.bytes[b.at] <= leadDouble+8 {
			lead := b.bytes[b.at]
			b.at++
			m.Gauge, err = b.doubleAfter(lead)
		} else {
			err = b.decimal(of)
			m.Gauge = quotient(of.last, of.places)
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	usual(len(all))
	return messages, nil
}

// shaped reads a list of a shape. This shape is at an index of the body.
func (b *block) shaped(of *series, shape byte, at int) ([]float64, error) {
	count, width := uint64(shape>>5), uint64(shape&0x1f)
	if count == 0 {
		if shape > mostPlaces {
			return nil, b.wrong(at, "the shape of a list", "%#02x", shape)
		}
		of.places = shape
		values, err := b.list()
		if err != nil {
			return nil, err
		}
		return values, b.countValues(len(values))
	}
	bytes, err := b.take((count*width+7)/8, "the values of a batch timer")
	if err != nil {
		return nil, err
	}
	values := make([]float64, count)
	for i := range values {
		number := uint64(0)
		if width > 0 {
			number = packed{bytes, width}.at(uint64(i))
		}
		values[i] = quotient(int64(number), of.places)
	}
	return values, nil
}

// countValues fails if a list that was just read gives this block too many values.
func (b *block) countValues(count int) error {
	b.values += count
	if b.values > mostValues {
		return b.wrong(b.at-1, "lists of at most 2^22 values in a block", "%d", b.values)
	}
	return nil
}

// change decodes a number of a column.
func change(number uint64) int64 {
	return int64(number>>1) ^ -int64(number&1)
}

const (
	// groupLength is the number of numbers in a group of a column.
	groupLength = 32
	// widestShort is the maximum width that need not be a multiple of 8.
	widestShort = 31
	// mostValues is the maximum number of values in the lists of a block that are not short.
	mostValues = 1 << 22
)
