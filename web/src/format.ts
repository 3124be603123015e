// Numbers for people. GB are 10^9 bytes.

export function bytes(value: number, digits = 3): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    ++unit;
  }
  return `${unit === 0 ? Math.round(value) : precise(value, digits)} ${units[unit]}`;
}

// At most `digits` significant digits, never an exponent, no zeros that say nothing.
export function precise(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 10 ** digits) return Math.round(value).toLocaleString("en-US");
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  const decimals = Math.max(0, Math.min(12, digits - whole));
  return value.toFixed(decimals);
}

export function seconds(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0 ms";
  if (value < 0.9995) return `${precise(value * 1000, digits)} ms`;
  if (value < 120) return `${precise(value, digits)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${precise(value / 3600)} h`;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}
