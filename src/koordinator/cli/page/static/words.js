// Numbers and times as people read them, each with its unit.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * Milli-CPU as cores.
 * @param {number} milli
 */
export function cores(milli) {
  const text = (milli / 1000).toLocaleString("en", { maximumFractionDigits: Math.abs(milli) < 10000 ? 2 : 0 });
  return `${text} ${Math.abs(milli) === 1000 ? "core" : "cores"}`;
}

/** @param {number} amount */
export function bytes(amount) {
  let unit = 0;
  let left = amount;
  while (Math.abs(left) >= 1024 && unit < BINARY.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left.toLocaleString("en", { maximumFractionDigits: Math.abs(left) < 10 ? 1 : 0 })} ${BINARY[unit]}`;
}

/**
 * An amount of a resource, by the rules of `koord get`.
 * @param {string} resource
 * @param {number} value milli-CPU for cpu, else the plain value
 */
export function amount(resource, value) {
  if (resource === "cpu") return cores(value);
  if (resource.endsWith("-cpu")) return cores(value);
  if (resource.endsWith("gpu-core") || resource.endsWith("-ratio")) return `${value} %`;
  if (resource.includes("memory") || resource.includes("storage") || resource.startsWith("hugepages-")) return bytes(value);
  return value.toLocaleString("en");
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

/**
 * "1 pod", "2 pods".
 * @param {number} count @param {string} one @param {string} [many]
 */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/**
 * How long ago, as kubectl has it.
 * @param {string} time in RFC 3339; empty for never
 * @param {number} [now] milliseconds
 */
export function age(time, now = Date.now()) {
  const then = Date.parse(time);
  if (Number.isNaN(then)) return "";
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  for (const [unit, size] of /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["m", 60]])) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${seconds}s`;
}

/**
 * A moment in the viewer's own time zone.
 * @param {string} time
 */
export function moment(time) {
  const then = new Date(time);
  return Number.isNaN(then.getTime()) ? "" : then.toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
}

/** kubernetes.io/batch-cpu → batch CPU. @param {string} name */
export function resourceName(name) {
  return name.replace(/^(kubernetes\.io|koordinator\.sh)\//, "").replace(/-/g, " ").replace(/\b(cpu|gpu|rdma)\b/g, (found) => found.toUpperCase());
}

/** koord-prod → prod. @param {string} name */
export function className(name) {
  return name.replace(/^koord-/, "");
}
