// The official `openai` package for TypeScript: Chat Completions, Responses and Embeddings.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import * as harness from "./harness.mjs";

const City = z.object({ name: z.enum(["Lima", "Rome"]), people: z.number().int() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const description = "The weather in a city";
const user = (content) => ({ role: "user", content });
const connect = ({ url }) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });

const chat = {
  async text(ask) {
    const answer = await connect(ask).chat.completions.create({
      model: ask.model,
      messages: [{ role: "system", content: harness.SYSTEM }, user(harness.HELLO)],
      max_tokens: ask.max_tokens,
      temperature: harness.TEMPERATURE,
      ...ask.fields,
    });
    const { prompt_tokens, completion_tokens } = answer.usage;
    return { text: answer.choices[0].message.content, tokens: [prompt_tokens, completion_tokens] };
  },

  async stream(ask) {
    const chunks = await connect(ask).chat.completions.create({
      model: ask.model,
      messages: [user(harness.COUNT)],
      max_tokens: ask.max_tokens,
      stream: true,
      stream_options: { include_usage: true },
    });
    const texts = [];
    let tokens = [];
    for await (const chunk of chunks) {
      for (const { delta } of chunk.choices) if (delta.content) texts.push(delta.content);
      if (chunk.usage) tokens = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
    }
    return { texts, tokens };
  },

  async conversation(ask) {
    const messages = [];
    const texts = [];
    for (const question of [harness.HELLO, harness.AGAIN]) {
      messages.push(user(question));
      const answer = await connect(ask).chat.completions.create({ model: ask.model, messages });
      messages.push(answer.choices[0].message);
      texts.push(answer.choices[0].message.content);
    }
    return { texts };
  },

  async cancel(ask) {
    const chunks = await connect(ask).chat.completions.create({
      model: ask.model,
      messages: [user(harness.COUNT)],
      stream: true,
    });
    for await (const chunk of chunks) {
      const text = chunk.choices[0]?.delta.content;
      if (text) {
        chunks.controller.abort();
        return { texts: [text] };
      }
    }
  },

  async tools(ask) {
    const calls = [];
    const run = (args) => {
      calls.push({ name: "weather", arguments: args });
      return harness.weather(args);
    };
    const tool = { name: "weather", description, parameters, parse: JSON.parse, function: run };
    const runner = connect(ask).chat.completions.runTools({
      model: ask.model,
      messages: [user(harness.WEATHER)],
      stream: ask.stream,
      tools: [{ type: "function", function: tool }],
    });
    return { calls, text: await runner.finalContent() };
  },

  async structured(ask) {
    const answer = await connect(ask).chat.completions.parse({
      model: ask.model,
      messages: [user(harness.CITY)],
      response_format: zodResponseFormat(City, "city"),
    });
    return { value: answer.choices[0].message.parsed };
  },
};

const responses = {
  async text(ask) {
    const answer = await connect(ask).responses.create({
      model: ask.model,
      instructions: harness.SYSTEM,
      input: harness.HELLO,
      max_output_tokens: ask.max_tokens,
      temperature: harness.TEMPERATURE,
      ...ask.fields,
    });
    const { input_tokens, output_tokens } = answer.usage;
    return { text: answer.output_text, tokens: [input_tokens, output_tokens] };
  },

  async stream(ask) {
    const events = connect(ask).responses.stream({
      model: ask.model,
      input: harness.COUNT,
      max_output_tokens: ask.max_tokens,
    });
    const texts = [];
    for await (const event of events) {
      if (event.type === "response.output_text.delta") texts.push(event.delta);
    }
    const { usage } = await events.finalResponse();
    return { texts, tokens: [usage.input_tokens, usage.output_tokens] };
  },

  async conversation(ask) {
    const input = [];
    const texts = [];
    for (const question of [harness.HELLO, harness.AGAIN]) {
      input.push(user(question));
      const answer = await connect(ask).responses.create({ model: ask.model, input });
      input.push(...answer.output);
      texts.push(answer.output_text);
    }
    return { texts };
  },

  async cancel(ask) {
    const events = connect(ask).responses.stream({ model: ask.model, input: harness.COUNT });
    for await (const event of events) {
      if (event.type === "response.output_text.delta") {
        events.abort();
        return { texts: [event.delta] };
      }
    }
  },

  async tools(ask) {
    const client = connect(ask);
    const input = [user(harness.WEATHER)];
    const calls = [];
    const tools = [{ type: "function", name: "weather", description, parameters, strict: true }];
    for (;;) {
      const fields = { model: ask.model, input, tools };
      const answer = ask.stream
        ? await client.responses.stream(fields).finalResponse()
        : await client.responses.create(fields);
      input.push(...answer.output);
      const made = answer.output.filter((item) => item.type === "function_call");
      for (const { name, call_id, arguments: written } of made) {
        const args = JSON.parse(written);
        calls.push({ name, arguments: args });
        input.push({ type: "function_call_output", call_id, output: harness.weather(args) });
      }
      if (made.length === 0) return { calls, text: answer.output_text };
    }
  },

  async structured(ask) {
    const answer = await connect(ask).responses.parse({
      model: ask.model,
      input: harness.CITY,
      text: { format: zodTextFormat(City, "city") },
    });
    return { value: answer.output_parsed };
  },
};

const doors = { chat, responses };
const by = (what) => (ask) => doors[ask.via][what](ask);

await harness.serve(
  {
    text: by("text"),
    stream: by("stream"),
    conversation: by("conversation"),
    cancel: by("cancel"),
    tools: by("tools"),
    structured: by("structured"),
    async embeddings(ask) {
      const answer = await connect(ask).embeddings.create({ model: ask.model, input: ask.texts });
      return { vectors: answer.data.map((each) => each.embedding) };
    },
    async models(ask) {
      const models = [];
      for await (const model of connect(ask).models.list()) models.push(model.id);
      return { models };
    },
  },
  (error) => harness.failureOf(error, error.status, error.headers?.get("retry-after")),
);
