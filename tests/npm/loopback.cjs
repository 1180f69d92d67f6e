// Loaded into a server before its own code (node --require), because the server
// can be told a port but no address, and would listen on every interface of the
// machine that runs the tests.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => {
    // The operating system chose the port (PORT=0): no other process can have
    // taken it in between, and this line says that connections are accepted.
    console.log(`listening on port ${this.address().port} of the loopback`);
  });
  return listen.call(this, { host: "127.0.0.1", port: Number(port) }, ...rest);
};

// The tests hold the other end of stdin: however they end, the server ends too.
process.stdin.resume().once("close", () => process.exit());
