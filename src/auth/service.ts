/** Composition root of the auth service: creates its parts and connects them. */
import type { Hono } from "hono";
import { type Clock, systemClock } from "../platform/base/clock.ts";
import type { Loop } from "../platform/base/loop.ts";
import { openCache } from "../platform/cache/open-cache.ts";
import type { OpenDatabase } from "../platform/database/database.ts";
import { createDatabaseClock } from "../platform/database/database-clock.ts";
import { openDatabase } from "../platform/database/open.ts";
import { createStandbys } from "../platform/database/standbys.ts";
import type { PreparedBroker } from "../platform/messaging/broker.ts";
import { openBroker } from "../platform/messaging/open-broker.ts";
import { outboxBacklog } from "../platform/messaging/outbox.ts";
import { publishEvents } from "../platform/messaging/publish-events.ts";
import { logEvents, type Subscriber, startRelay } from "../platform/messaging/relay.ts";
import type { Logger } from "../platform/observability/logger.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import { type ContractDocument, contractTexts, loadContract } from "../platform/openapi/document.ts";
import type { RpcService } from "../platform/rpc/service.ts";
import { grantTypes } from "./client-settings.ts";
import { createAuthenticator } from "./clients/authenticate-client.ts";
import { createClientRepository } from "./clients/client-repository.ts";
import { synchroniseClients } from "./clients/synchronise-clients.ts";
import { VerifiedSecrets } from "./clients/verified-secrets.ts";
import { AuthEvents, authEventStream } from "./events.ts";
import { createGenerateTokens, tokenOutcomes } from "./grants/generate-tokens.ts";
import { createGrants } from "./grants/grants.ts";
import { createVerifyOtpProof } from "./grants/otp-proof.ts";
import { createOtpChecks } from "./grants/otp-verifier-client.ts";
import { authHttp } from "./http.ts";
import { changedInTurn } from "./identities/changed-in-turn.ts";
import { confirmedIdentities } from "./identities/confirmed-identities.ts";
import { createIdentities } from "./identities/identities.ts";
import { janitorKinds, startJanitor } from "./janitor.ts";
import { createKeyStore } from "./keys/key-store.ts";
import { serverMetadata } from "./keys/server-metadata.ts";
import { createKeyOf } from "./limits/attempt-counters.ts";
import { createCacheCounters, preferCache, rehearseCounting } from "./limits/cache-counters.ts";
import { createDatabaseCounters } from "./limits/database-counters.ts";
import { createGuessObserver } from "./limits/guess-observer.ts";
import { createGuessing, guessingRules } from "./limits/guessing.ts";
import { authRpc } from "./rpc.ts";
import { startPulse } from "./running-time.ts";
import { brokerStreams, keptEvents, outbox, readLeases, relayLeases } from "./schema.ts";
import type { AuthSettings } from "./settings.ts";
import { createAccessTokens } from "./tokens/access-token.ts";
import { createAuthorizationRepository } from "./tokens/authorization-repository.ts";
import { createConfirmed } from "./tokens/confirmed.ts";
import { CurrentTokens } from "./tokens/current-tokens.ts";
import { createHasLiveAuthorization } from "./tokens/has-live-authorization.ts";
import { createIntrospect } from "./tokens/introspect.ts";
import { createFindPresented } from "./tokens/presented-token.ts";
import { createRevoke } from "./tokens/revoke.ts";
import { createRotateRefreshToken } from "./tokens/rotate-refresh-token.ts";
import { createRotations } from "./tokens/rotations.ts";
import { createTokenIssuer } from "./tokens/token-issuer.ts";

/** The service's schema and the history of its migrations. */
export const authMigrations = { schema: "auth", folder: new URL("../../drizzle/auth", import.meta.url) };

export interface AuthService {
  readonly http: Hono;
  readonly document: ContractDocument;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  /** The broker of its events; undefined if it has none. */
  readonly broker: PreparedBroker | undefined;
  /**
   * Synchronises the clock and the registered clients; throws if the database is unavailable.
   * @throws SettingsError if the settings contradict what the database has
   */
  prepare(): Promise<void>;
  /** Starts the janitor and the relay of events. */
  startWorkers(): void;
  /** Stops the workers and closes the database. */
  stop(): Promise<void>;
}

/** Events that an operator should look at. */
const loggedAsWarnings = [AuthEvents.authorizationReuseDetected.type, AuthEvents.accountLocked.type];

/** Events after which something is no longer active. */
const endings: ReadonlySet<string> = new Set([
  AuthEvents.identityDeleted.type,
  AuthEvents.authorizationReuseDetected.type,
  AuthEvents.authorizationRevoked.type,
  AuthEvents.tokenRevoked.type,
]);

interface Dependencies {
  readonly settings: AuthSettings;
  readonly logger: Logger;
  /** Where events are written; undefined: nowhere. */
  readonly eventLog: Logger | undefined;
  readonly metrics: Metrics;
  /** Whether every response is validated against the document; in tests and development. */
  readonly validateResponses: boolean;
  readonly clock?: Clock;
  /** Receive the service's events, each before it is logged. None by default. */
  readonly subscribers?: readonly Subscriber[];
}

export async function createAuthService(dependencies: Dependencies): Promise<AuthService> {
  const { settings, logger, eventLog, metrics, validateResponses } = dependencies;
  const { issuer } = settings;
  const [database, keys, document] = await Promise.all([
    openDatabase(settings.database, authMigrations, metrics.database("auth"), logger),
    createKeyStore(settings.signing),
    loadContract(contractTexts("auth", "auth")),
  ]);
  const { db, reads } = database;
  const clock = createDatabaseClock({
    db: reads,
    clock: dependencies.clock ?? systemClock,
    report: (offsetMs) =>
      logger.warn(
        { offsetMs },
        "The clocks of this process and of the database differ; the database's holds",
      ),
  });
  // The embedded database has the clock of its process, and pauses with it.
  const isEmbedded = settings.database.kind === "embedded";
  const followsClock = !isEmbedded && !dependencies.clock?.isSimulated;
  const verified = new VerifiedSecrets();
  const clients = createClientRepository(reads);
  const standbys =
    database.standbys &&
    createStandbys({
      ...database.standbys,
      table: readLeases,
      report: (standby, isRead, err) => {
        if (isRead) logger.info({ standby }, "Introspection reads from a standby");
        else logger.warn({ standby, err }, "Introspection no longer reads from a standby");
      },
    });
  const confirmed = createConfirmed(database.confirm, standbys);
  const authorizations = createAuthorizationRepository(reads, standbys);
  const findPresented = createFindPresented(reads);
  const rotations = createRotations(db, (err) => logger.warn({ err }, "Rotations could not be stamped"));
  const accessTokens = createAccessTokens({ keys, issuer, clock, type: settings.accessTokenType });
  const currentTokens = new CurrentTokens();
  const tokenIssuer = createTokenIssuer({ db, clock, accessTokens, currentTokens, issuer });
  const identities = confirmedIdentities(changedInTurn(createIdentities(db, clock)), confirmed);
  const issued = metrics.counter("gatepost_token_requests_total", "Token requests, by grant and outcome.", {
    grant_type: grantTypes,
    outcome: tokenOutcomes,
  });

  const cache =
    settings.cache &&
    (await openCache({
      settings: settings.cache,
      prefix: "gatepost:auth:",
      name: "gatepost-auth",
      whileAway: "attempts are counted in the database",
      rehearse: rehearseCounting,
      logger,
      observer: metrics.cache("auth"),
    }));
  const keyOf = createKeyOf(settings.internalClient.clientSecret);
  const databaseCounters = createDatabaseCounters(db, keyOf);
  const counters = cache
    ? preferCache(createCacheCounters(cache, keyOf), databaseCounters)
    : databaseCounters;
  const guessing = createGuessing({
    rules: guessingRules,
    counters,
    hasLiveAuthorization: createHasLiveAuthorization(db),
    observer: createGuessObserver({ db, clock, metrics, logger }),
  });
  const authenticator = createAuthenticator({
    clients,
    verified,
    internalClient: settings.internalClient,
    platformSecurityApiKey: settings.platformSecurityApiKey,
  });
  const generateTokens = createGenerateTokens({
    grants: createGrants({
      identities,
      issuer: tokenIssuer,
      rotateRefreshToken: createRotateRefreshToken({
        ...{ db, currentTokens, findPresented, rotations, issuer: tokenIssuer, confirmed },
      }),
      otpChecks: createOtpChecks(settings.otp.verifierUrl),
      verifyOtpProof: createVerifyOtpProof(settings.otp, clock),
      guessing,
    }),
    issued: (grant_type, outcome) => issued.inc({ grant_type, outcome }),
  });
  const introspect = createIntrospect({ accessTokens, authorizations });
  const revoke = createRevoke({ db, accessTokens, findPresented, confirmed });
  const metadata = serverMetadata(issuer, settings.clients);
  const http = authHttp(
    { authenticator, identities, guessing, generateTokens, introspect, revoke, keys, metadata },
    { document, logger, observer: metrics.http, validateResponses },
  );

  const broker = settings.broker && (await openBroker(settings.broker, "auth", logger));
  const publisher = broker && publishEvents(broker, authEventStream, Object.values(AuthEvents));
  const subscribers: readonly Subscriber[] = [
    ...(dependencies.subscribers ?? []),
    ...(publisher ? [publisher] : []),
    ...(eventLog ? [logEvents(eventLog, loggedAsWarnings)] : []),
  ];

  const workers: Loop[] = [];
  return {
    http,
    document,
    rpc: [authRpc({ authenticator, introspect })],
    database,
    broker: broker && { prepare: () => broker.prepareStream(authEventStream) },
    async prepare() {
      if (followsClock) await clock.measure();
      await synchroniseClients(
        { db, clock, verified, warn: (message) => logger.warn(message) },
        { registrations: settings.clients, revision: settings.clientsRevision },
      );
      // It may have disabled some.
      await confirmed.ended();
    },
    startWorkers() {
      const { broker: { replayHours } = { replayHours: 0 }, janitorIntervalSeconds: intervalSeconds } =
        settings;
      if (followsClock) workers.push(clock.start());
      if (!isEmbedded) workers.push(startPulse(db));
      if (standbys) workers.push(standbys.start());
      workers.push(
        startJanitor({
          ...{ db, logger, intervalSeconds, replayHours },
          observer: metrics.janitor("auth", janitorKinds),
        }),
        startRelay({
          db,
          outbox,
          leases: relayLeases,
          source: issuer,
          subscribers,
          logger,
          delivered: metrics.outbox("auth", () => outboxBacklog(reads, outbox, subscribers)),
          // Who learns of an ending, and asks, is not told otherwise by a standby.
          ...(standbys && {
            mayDeliver: async (events) => {
              if (events.some(({ type }) => endings.has(type))) await standbys.applied();
            },
          }),
          ...(publisher &&
            replayHours > 0 && {
              replay: {
                ...{ kept: keptEvents, streams: brokerStreams, stream: authEventStream.name },
                hours: replayHours,
                identify: publisher.identify,
              },
            }),
          // The log is one, and keeps the order of all events.
          inParts: broker !== undefined,
          isOnlyProcess: isEmbedded,
        }),
      );
    },
    async stop() {
      await Promise.all([rotations.stop(), ...workers.map((worker) => worker.stop())]);
      await Promise.all([broker?.close(), cache?.close()]);
      await database.close();
    },
  };
}
