// Cron expressions in words. What it can't say in a sentence it leaves as it is written.

const NICKNAMES: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/** "Every weekday at 09:30", or undefined where the expression is beyond a plain sentence. */
export function words(expression: string): string | undefined {
  const text = expression.trim();
  const fields = (NICKNAMES[text.toLowerCase()] ?? text).split(/\s+/);
  // A sixth field stands first, and is of seconds.
  const [minute, hour, day, month, weekday] = fields.length === 6 ? fields.slice(1) : fields;
  if (!minute || !hour || !day || !month || !weekday || fields.length < 5 || fields.length > 6) {
    return undefined;
  }
  const second = fields.length === 6 ? fields[0]! : "0";
  const time = timeOf(second, minute, hour);
  const date = dateOf(day, month, weekday);
  if (time === undefined || date === undefined) return undefined;
  const sentence = time.isClock
    ? `${date.when || "every day"} ${time.text}`
    : `${time.text}${
        date.when ? ` ${date.when.startsWith("on ") ? date.when : `, ${date.when}`}` : ""
      }`;
  return capital(sentence.replace(" ,", ","));
}

interface Time {
  text: string;
  isClock: boolean;
}

function timeOf(second: string, minute: string, hour: string): Time | undefined {
  const steps = (field: string) => /^(?:\*|0)\/(\d+)$/.exec(field)?.[1];
  if (second !== "0") {
    const step = second === "*" ? "1" : steps(second);
    if (step === undefined || minute !== "*" || hour !== "*") return undefined;
    return { text: every(step, "second"), isClock: false };
  }
  if (hour === "*") {
    const step = minute === "*" ? "1" : steps(minute);
    if (step !== undefined) return { text: every(step, "minute"), isClock: false };
    const minutes = numbers(minute, 0, 59);
    if (!minutes) return undefined;
    if (minutes.length === 1 && minutes[0] === 0) return { text: "every hour", isClock: false };
    const at = list(minutes.map(String));
    const unit = minutes.length === 1 && minutes[0] === 1 ? "minute" : "minutes";
    return { text: `every hour, ${at} ${unit} past`, isClock: false };
  }
  const minutes = numbers(minute, 0, 59);
  const step = steps(hour);
  if (step !== undefined && minutes?.length === 1) {
    const past = minutes[0] ? `, ${minutes[0]} minutes past` : "";
    return { text: `${every(step, "hour")}${past}`, isClock: false };
  }
  const hours = numbers(hour, 0, 23);
  const within = /^(\d{1,2})-(\d{1,2})$/.exec(hour);
  if (within && (minute === "*" || steps(minute) !== undefined)) {
    const each = every(minute === "*" ? "1" : steps(minute)!, "minute");
    return {
      text: `${each} from ${clock(+within[1]!, 0)} to ${clock(+within[2]!, 59)}`,
      isClock: false,
    };
  }
  if (!hours || !minutes || hours.length * minutes.length > 6) return undefined;
  const times = hours.flatMap((each) => minutes.map((one) => clock(each, one)));
  return { text: `at ${list(times)}`, isClock: true };
}

function dateOf(day: string, month: string, weekday: string): { when: string } | undefined {
  if (day !== "*" && weekday !== "*") return undefined;
  const months = month === "*" ? [] : numbers(month, 1, 12, MONTHS);
  if (!months) return undefined;
  const inMonths = months.length ? `in ${list(months.map((each) => MONTHS[each - 1]!))}` : "";
  if (weekday !== "*") {
    const found = numbers(weekday, 0, 7, DAYS);
    if (!found) return undefined;
    return { when: joined(weekdays([...new Set(found.map((each) => each % 7))]), inMonths) };
  }
  if (day === "*") return { when: joined(months.length ? "every day" : "", inMonths) };
  if (day.toUpperCase() === "L") return { when: joined("on the last day of the month", inMonths) };
  const days = numbers(day, 1, 31);
  if (!days) return undefined;
  if (months.length === 1 && days.length === 1) {
    return { when: `every year on ${days[0]} ${MONTHS[months[0]! - 1]}` };
  }
  const of = inMonths || "of the month";
  return { when: `on the ${list(days.map(ordinal))} ${of}` };
}

function weekdays(days: number[]): string {
  const key = [...days].sort().join("");
  if (key === "12345") return "every weekday";
  if (key === "06") return "on Saturday and Sunday";
  if (key === "0123456") return "";
  const names = days.map((each) => DAYS[each]!);
  return names.length === 1 ? `every ${names[0]}` : `on ${list(names)}`;
}

/** The values of a field of numbers, names, ranges and lists; undefined if it has anything else. */
function numbers(field: string, low: number, high: number, names?: string[]): number[] | undefined {
  const found: number[] = [];
  for (const part of field.split(",")) {
    const [first, last, ...rest] = part.split("-");
    const from = value(first!, low, names);
    const to = last === undefined ? from : value(last, low, names);
    if (from === undefined || to === undefined || rest.length) return undefined;
    if (from < low || to > high || from > to) return undefined;
    for (let each = from; each <= to; each += 1) found.push(each);
  }
  return found;
}

function value(text: string, low: number, names?: string[]): number | undefined {
  if (/^\d{1,2}$/.test(text)) return Number(text);
  const place = names?.findIndex((name) => name.slice(0, 3).toLowerCase() === text.toLowerCase());
  return place === undefined || place < 0 ? undefined : place + low;
}

function every(step: string, unit: string): string {
  return step === "1" ? `every ${unit}` : `every ${step} ${unit}s`;
}

function clock(hour: number, minute: number): string {
  return `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;
}

function list(items: string[]): string {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

function ordinal(number: number): string {
  const teens = number % 100 > 10 && number % 100 < 14;
  const end = teens ? "th" : (["th", "st", "nd", "rd"][number % 10] ?? "th");
  return `${number}${end}`;
}

function joined(...parts: string[]): string {
  return parts.filter(Boolean).join(" ");
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
