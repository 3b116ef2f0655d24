// The official `@anthropic-ai/sdk` package for TypeScript.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import * as harness from "./harness.mjs";

const City = z.object({ name: z.enum(["Lima", "Rome"]), people: z.number().int() });
const connect = ({ url }) => new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const asking = (ask, content) => ({
  model: ask.model,
  max_tokens: ask.max_tokens,
  messages: [{ role: "user", content }],
});
const tokensOf = ({ usage }) => [usage.input_tokens, usage.output_tokens];
const textOf = (message) =>
  message.content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("");

await harness.serve(
  {
    async text(ask) {
      const message = await connect(ask).messages.create({
        ...asking(ask, harness.HELLO),
        system: harness.SYSTEM,
        temperature: harness.TEMPERATURE,
        ...ask.fields,
      });
      return { text: textOf(message), tokens: tokensOf(message) };
    },

    async stream(ask) {
      const texts = [];
      const stream = connect(ask).messages.stream(asking(ask, harness.COUNT));
      stream.on("text", (text) => texts.push(text));
      return { tokens: tokensOf(await stream.finalMessage()), texts };
    },

    async conversation(ask) {
      const messages = [];
      const texts = [];
      for (const content of [harness.HELLO, harness.AGAIN]) {
        messages.push({ role: "user", content });
        const answer = await connect(ask).messages.create({ ...asking(ask, ""), messages });
        messages.push({ role: "assistant", content: answer.content });
        texts.push(textOf(answer));
      }
      return { texts };
    },

    async cancel(ask) {
      const stream = connect(ask).messages.stream(asking(ask, harness.COUNT));
      for await (const event of stream) {
        if (event.type === "content_block_delta") {
          stream.abort();
          return { texts: [event.delta.text] };
        }
      }
    },

    async tools(ask) {
      const calls = [];
      const weather = betaZodTool({
        name: "weather",
        description: "The weather in a city",
        inputSchema: z.object({ city: z.string() }),
        run: (args) => {
          calls.push({ name: "weather", arguments: args });
          return harness.weather(args);
        },
      });
      const runner = connect(ask).beta.messages.toolRunner({
        ...asking(ask, harness.WEATHER),
        tools: [weather],
        stream: ask.stream,
      });
      return { text: textOf(await runner.runUntilDone()), calls };
    },

    async structured(ask) {
      const message = await connect(ask).messages.parse({
        ...asking(ask, harness.CITY),
        output_config: { format: zodOutputFormat(City) },
      });
      return { value: message.parsed_output };
    },

    async models(ask) {
      const models = [];
      for await (const model of connect(ask).models.list()) {
        models.push(model.display_name);
      }
      return { models };
    },
  },
  (error) => harness.failureOf(error, error.status, error.headers?.get("retry-after")),
);
