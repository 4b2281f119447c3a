// Reads partition 0 of a topic with kafkajs and prints each record's offset, up to LAST.
//
//     node kafkajs.js HOST:PORT TOPIC LAST BYTES        BYTES: the most of one partition in a fetch

const { Kafka, logLevel } = require('kafkajs')

const [address, topic, last, bytes] = process.argv.slice(2)
const consumer = new Kafka({ brokers: [address], logLevel: logLevel.ERROR }).consumer({
  groupId: `${topic}-${bytes}`,
  maxBytesPerPartition: Number(bytes),
  maxWaitTimeInMs: 100,
})

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      console.log(message.offset)
      if (message.offset === last) process.exit(0)
    },
  })
}

main()
