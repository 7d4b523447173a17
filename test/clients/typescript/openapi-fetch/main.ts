import { walk } from "../walk.ts";
import { gatepost } from "./client.ts";

await walk(gatepost);
