// Sends with hot-shots: sender.js PROTOCOL PORT PREFIX.
const StatsD = require("hot-shots");

const [protocol, port, prefix] = process.argv.slice(2);
const fail = (error) => {
  throw error;
};
const options = { protocol, host: "127.0.0.1", port: Number(port), prefix: `${prefix}.` };
const client = new StatsD({ ...options, errorHandler: fail });
const tags = { route: "/a" };
client.increment("hits", 3, tags);
client.increment("hits", 1, tags);
client.gauge("level", 2.5);
client.timing("took", 20);
client.timing("took", 20);
client.histogram("size", 5);
client.histogram("size", 15);
client.distribution("spread", 7);
client.event("an event", "with a text");
client.check("a.check", client.CHECKS.OK);
client.close((error) => (error ? fail(error) : undefined));
