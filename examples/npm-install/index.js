const ms = require("ms");
const colors = require("picocolors");
const semver = require("semver");

const installed = semver.satisfies(require("semver/package.json").version, "^7.6.0");
console.log(colors.green("installed"), installed, ms(2 * 24 * 60 * 60 * 1000));
