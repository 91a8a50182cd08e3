// What the guest finds beside the engine's own built-ins. Evaluated once, in the template; the value of this script is
// called with the two native functions. Nothing of it is reachable by name. It makes no Map, Set or WeakMap: each worker hashes their keys anew.
(function (print, hostCall) {
  "use strict";
  const define = Object.defineProperty;
  const own = (name, value) => define(globalThis, name, { value, writable: true, enumerable: false, configurable: true });

  // Console: one stream, stdout, for every method.
  const console = {};
  for (const name of ["log", "error", "warn", "info", "debug", "trace"]) console[name] = print;
  own("console", console);
  own("print", print);

  // Grants: the raw call. The native side answers a string, three digits of status and the body, or a number for a refused argument.
  own("__coderunner_host_call", function __coderunner_host_call(text) {
    if (arguments.length === 0) throw new TypeError("host call needs one argument");
    const answer = hostCall(`${text}`);
    if (typeof answer === "number") throw new RangeError("host call request is too large");
    return { status: +answer.slice(0, 3), body: answer.slice(3) };
  });

  // Numbers the English way, where the engine has no Intl of its own.
  const symbols = { USD: "$", CAD: "$", AUD: "$", EUR: "\u20ac", GBP: "\u00a3", JPY: "\u00a5", CNY: "\u00a5", INR: "\u20b9" };
  const digits = (options, currency) => {
    let min = options.minimumFractionDigits;
    let max = options.maximumFractionDigits;
    if (min === undefined) {
      min = currency ? 2 : 0;
      if (max !== undefined && max < min) min = max;
    }
    if (max === undefined) max = currency ? 2 : 3;
    return { min, max: max < min ? min : max };
  };
  const format = (value, options) => {
    const number = Number(value);
    if (!Number.isFinite(number)) return String(number);
    const currency = options.style === "currency";
    const { min, max } = digits(options, currency);
    let [whole, fraction = ""] = Math.abs(number).toFixed(max).split(".");
    while (fraction.length > min && fraction.endsWith("0")) fraction = fraction.slice(0, -1);
    if (/^[0-9]+$/.test(whole)) whole = whole.replace(/\B(?=(?:[0-9]{3})+$)/g, ",");
    const code = currency ? String(options.currency ?? "USD") : "";
    const symbol = currency ? (symbols[code] ?? `${code} `) : "";
    return (number < 0 ? "-" : "") + symbol + whole + (fraction === "" ? "" : `.${fraction}`);
  };
  if (typeof globalThis.Intl?.NumberFormat !== "function") {
    if (typeof globalThis.Intl !== "object") own("Intl", {});
    const NumberFormat = function NumberFormat(locales, options) {
      if (!new.target) return new NumberFormat(locales, options);
      const settings = { ...options };
      define(this, "format", { value: (value) => format(value, settings), writable: true, configurable: true });
      define(this, "resolvedOptions", { value: () => ({ locale: "en-US", ...settings }), writable: true, configurable: true });
    };
    define(globalThis.Intl, "NumberFormat", { value: NumberFormat, writable: true, enumerable: false, configurable: true });
  }
  if ((1234).toLocaleString() === "1234") {
    const toLocaleString = function toLocaleString(locales, options) {
      return format(this, options ?? {});
    };
    define(Number.prototype, "toLocaleString", { value: toLocaleString, writable: true, enumerable: false, configurable: true });
  }
})
