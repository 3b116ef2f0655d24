// Runs the scenarios of one client: a question a line comes in, an answer a line goes out.
import { createInterface } from "node:readline";

export const SYSTEM = "Be brief.";
export const HELLO = "Hello";
export const AGAIN = "And again?";
export const COUNT = "Count to three";
export const WEATHER = "What is the weather in Rome?";
export const CITY = "Name a city";
export const TEMPERATURE = 0.5;

export const weather = ({ city }) => `sunny in ${city}`;

/** How a client told that something went wrong: by which classes, and what it knows of it. */
export function failureOf(error, status, retryAfter, name = (kind) => kind.name) {
  const classes = [];
  for (let kind = error?.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) {
    classes.push(name(kind));
  }
  const message = String(error?.message ?? error);
  return { classes, status: status ?? null, retry_after: retryAfter ?? null, message };
}

/** Answers questions until there are none; an error of the client is an answer too. */
export async function serve(scenarios, describe) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: what, ...ask } = JSON.parse(line);
    let answer;
    try {
      answer = await scenarios[what](ask);
    } catch (error) {
      answer = { error: describe(error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}
