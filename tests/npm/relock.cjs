// Takes out of the lock file what an install does not use: the packages'
// funding notes, the only web addresses that are left in it once .npmrc has kept
// the download addresses out. Whoever installs decides where from.
const fs = require("node:fs");
const path = require("node:path");

const file = path.join(__dirname, "package-lock.json");
const lock = JSON.parse(fs.readFileSync(file, "utf8"));
for (const pkg of Object.values(lock.packages)) {
  delete pkg.funding;
}
fs.writeFileSync(file, JSON.stringify(lock, null, 2) + "\n");
