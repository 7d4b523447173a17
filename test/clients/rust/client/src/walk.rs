//! The walk through both services: create, token, introspect, refresh, revoke, device, send, history.
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use uuid::Uuid;

use crate::auth::{self, AuthClient};
use crate::push::{self, PushClient};

/// What introspection says of a token, over HTTP or gRPC.
#[derive(Debug, PartialEq)]
pub struct Introspected {
    pub active: bool,
    /// The user; none if the token is not active.
    pub sub: Option<String>,
    /// The client that requested the token; none likewise.
    pub client_id: Option<String>,
}

/// Where a notification stands.
#[derive(Debug)]
pub struct Progress {
    pub completed: bool,
    pub sent: i64,
}

/// The three calls of the walk that are offered over gRPC as well.
pub trait Transport {
    fn introspect(&self, token: &str) -> impl Future<Output = Result<Introspected>>;
    fn progress(&self, operator: &str, id: Uuid) -> impl Future<Output = Result<Progress>>;
    /// Sends to one user, with `ORDER` as data. Returns the notification's id.
    fn create(&self, operator: &str, user: &str) -> impl Future<Output = Result<Uuid>>;
}

/// What the walk sends as data.
pub const ORDER: (&str, &str) = ("orderId", "4711");

/// An id and a secret, for HTTP Basic.
struct Credentials {
    id: &'static str,
    secret: String,
}

impl Credentials {
    fn from_environment(id: &'static str, variable: &str) -> Result<Self> {
        Ok(Self { id, secret: environment(variable)? })
    }

    /// The value of an Authorization header.
    fn basic(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.id, self.secret)))
    }
}

/// The generated clients, and who calls with them.
pub struct Client {
    auth_url: String,
    push_url: String,
    internal: Credentials,
    api: Credentials,
    backend: Credentials,
    backoffice: Credentials,
}

/// A variable that `npm run test:clients` sets.
pub fn environment(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

impl Client {
    pub fn from_environment() -> Result<Self> {
        Ok(Self {
            auth_url: environment("GATEPOST_AUTH_URL")?,
            push_url: environment("GATEPOST_PUSH_URL")?,
            internal: Credentials::from_environment("internal", "GATEPOST_INTERNAL_SECRET")?,
            api: Credentials::from_environment("api", "GATEPOST_API_SECRET")?,
            backend: Credentials::from_environment("backend", "GATEPOST_BACKEND_SECRET")?,
            backoffice: Credentials::from_environment("backoffice", "GATEPOST_BACKOFFICE_SECRET")?,
        })
    }

    /// The credentials of a resource server as an Authorization header.
    pub fn api_authorization(&self) -> String {
        self.api.basic()
    }

    /// oas3-gen knows no HTTP Basic: the credentials are a default header of the HTTP client.
    fn auth(&self, credentials: &Credentials) -> Result<AuthClient> {
        let mut authorization = HeaderValue::try_from(credentials.basic())?;
        authorization.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, authorization)]);
        let http = reqwest::Client::builder().default_headers(headers).build()?;
        AuthClient::with_client(&self.auth_url, http)
    }

    fn push_of_user(&self, token: &str) -> Result<PushClient> {
        Ok(PushClient::with_base_url(&self.push_url)?.with_user_application(token))
    }

    fn push_of_operator(&self, token: &str) -> Result<PushClient> {
        Ok(PushClient::with_base_url(&self.push_url)?.with_backoffice_application(token))
    }

    async fn create_identity(&self, id: &str) -> Result<()> {
        let mut request = auth::CreateIdentityRequest::default();
        request.body.id = id.into();
        request.body.phone = new_phone();
        let created = match self.auth(&self.internal)?.create_identity(request.clone()).await? {
            auth::ApiResponse::Ok(response) => response.body,
            other => bail!("an identity was not created: {other:?}"),
        };
        ensure!(created.id == request.body.id && created.phone == request.body.phone, "{created:?}");
        match self.auth(&self.internal)?.create_identity(request).await? {
            auth::ApiResponse::Conflict(response) => {
                ensure!(response.body.code == auth::ProblemCode::IdentityIdTaken, "{response:?}");
            }
            other => bail!("an identity was created twice: {other:?}"),
        }
        Ok(())
    }

    async fn set_password(&self, id: &str, password: &str) -> Result<()> {
        let mut request = auth::SetIdentityPasswordRequest::default();
        request.path.id = id.into();
        request.body.password = password.into();
        match self.auth(&self.internal)?.set_identity_password(request).await? {
            auth::ApiResponse::NoContent(_) => Ok(()),
            other => bail!("the password was not set: {other:?}"),
        }
    }

    async fn tokens(&self, client: &Credentials, body: auth::TokenRequest) -> Result<auth::TokenPair> {
        let request = auth::GenerateTokensRequest { body, ..Default::default() };
        match self.auth(client)?.generate_tokens(request).await? {
            auth::ApiResponse::Ok(response) => Ok(response.body),
            other => bail!("no tokens: {other:?}"),
        }
    }

    async fn tokens_of_user(&self, id: &str) -> Result<auth::TokenPair> {
        let auth_id = Some(id.into());
        let body = auth::TokenRequest { grant_type: "auth".parse()?, auth_id, ..Default::default() };
        self.tokens(&self.backend, body).await
    }

    async fn revoke(&self, token: &str) -> Result<()> {
        let mut request = auth::RevokeTokenRequest::default();
        request.body.token = token.into();
        match self.auth(&self.backend)?.revoke_token(request).await? {
            auth::ApiResponse::Ok(response) => Ok(ensure!(!response.body.message.is_empty())),
            other => bail!("the token was not revoked: {other:?}"),
        }
    }

    async fn save_device(&self, user: &str, token: &str) -> Result<()> {
        let mut request = push::SavePushTokenRequest::default();
        request.header.barrier_user_utc_offset = Some("+05:45".into());
        request.body.token = token.into();
        request.body.expiration = "2035-01-20T12:00:00Z".parse()?;
        match self.push_of_user(user)?.save_push_token(request).await? {
            push::ApiResponse::NoContent(_) => Ok(()),
            other => bail!("the device was not saved: {other:?}"),
        }
    }

    /// Sends the same twice, with one key. Returns `Notification-Id`.
    async fn send(&self, operator: &str, title: &str) -> Result<Uuid> {
        let mut request = push::SendPushNotificationRequest::default();
        request.header.idempotency_key = Some(Uuid::new_v4().into());
        request.body.title = title.into();
        request.body.message = "How are you?".into();
        request.body.utc_offsets = [345].into_iter().collect();
        let mut ids = Vec::new();
        for _ in 0..2 {
            match self.push_of_operator(operator)?.send_push_notification(request.clone()).await? {
                push::ApiResponse::NoContent(response) => ids.push(response.headers.notification_id),
                other => bail!("the notification was not sent: {other:?}"),
            }
        }
        ensure!(ids[0] == ids[1], "one key made two notifications: {ids:?}");
        Ok(ids[0])
    }

    async fn history(&self, user: &str, mark_viewed: bool) -> Result<push::HistoryPage> {
        let mut request = push::GetNotificationsHistoryRequest::default();
        request.query.mark_viewed = Some(mark_viewed);
        match self.push_of_user(user)?.get_notifications_history(request).await? {
            push::ApiResponse::Ok(response) => Ok(response.body),
            other => bail!("no history: {other:?}"),
        }
    }
}

impl Transport for Client {
    async fn introspect(&self, token: &str) -> Result<Introspected> {
        let mut request = auth::IntrospectTokenRequest::default();
        request.body.token = token.into();
        match self.auth(&self.api)?.introspect_token(request).await? {
            auth::ApiResponse::Ok(response) => {
                let auth::Introspection { active, sub, client_id, .. } = response.body;
                Ok(Introspected { active, sub, client_id })
            }
            other => bail!("no introspection: {other:?}"),
        }
    }

    async fn progress(&self, operator: &str, id: Uuid) -> Result<Progress> {
        let mut request = push::GetNotificationRequest::default();
        request.path.id = id;
        match self.push_of_operator(operator)?.get_notification(request).await? {
            push::ApiResponse::Ok(response) => Ok(Progress {
                completed: response.body.state == push::NotificationState::Completed,
                sent: response.body.sent,
            }),
            other => bail!("no progress: {other:?}"),
        }
    }

    async fn create(&self, operator: &str, user: &str) -> Result<Uuid> {
        let mut request = push::CreateNotificationRequest::default();
        let text = push::NotificationText { title: "On its way".into(), message: "It comes tomorrow.".into() };
        request.body.audience.users = Some(vec![user.into()]);
        request.body.content.texts = Some([("en".to_string(), text)].into_iter().collect());
        request.body.content.data = Some([(ORDER.0.to_string(), ORDER.1.to_string())].into_iter().collect());
        match self.push_of_operator(operator)?.create_notification(request).await? {
            push::ApiResponse::Created(response) => Ok(response.body.id),
            other => bail!("the notification to a user was not sent: {other:?}"),
        }
    }
}

/// Creates a user and an operator, uses up a token, and sends the user a notification.
pub async fn walk(client: &Client, transport: &impl Transport) -> Result<()> {
    let user = format!("u-{}", Uuid::new_v4());
    client.create_identity(&user).await?;
    use_tokens(client, transport, &user).await?;
    notify(client, transport, &user).await
}

/// create → token → introspect → refresh → revoke: each step is seen by introspection.
async fn use_tokens(client: &Client, transport: &impl Transport, id: &str) -> Result<()> {
    let first = client.tokens_of_user(id).await?;
    let expected = Introspected { active: true, sub: Some(id.into()), client_id: Some("backend".into()) };
    let active = transport.introspect(&first.access_token).await?;
    ensure!(active == expected, "{active:?}");

    let refresh = auth::TokenRequest {
        grant_type: "refresh_token".parse()?,
        refresh_token: Some(first.refresh_token.clone()),
        ..Default::default()
    };
    let second = client.tokens(&client.backend, refresh).await?;
    ensure!(second.refresh_token != first.refresh_token, "the refresh token was not replaced");
    ensure!(transport.introspect(&second.access_token).await?.active, "a fresh token is not active");

    client.revoke(&second.refresh_token).await?;
    for pair in [first, second] {
        let inactive = transport.introspect(&pair.access_token).await?;
        ensure!(inactive == Introspected { active: false, sub: None, client_id: None }, "{inactive:?}");
    }
    Ok(())
}

/// device → send → history
async fn notify(client: &Client, transport: &impl Transport, id: &str) -> Result<()> {
    let user = client.tokens_of_user(id).await?.access_token;
    client.save_device(&user, &format!("device-{id}")).await?;

    let operator = sign_in_operator(client).await?;
    let title = format!("Hello {id}");
    let notification = client.send(&operator, &title).await?;
    completed(transport, &operator, notification).await?;

    let page = client.history(&user, true).await?;
    let [entry] = &page.content[..] else { bail!("not one entry: {page:?}") };
    ensure!(page.total_elements == 1 && !entry.viewed && entry.user_id == id, "{page:?}");
    ensure!(entry.notification.title == title && entry.notification.image.is_none(), "{entry:?}");
    let age = chrono::Utc::now() - entry.send_at;
    ensure!(age.num_minutes().abs() < 10, "sent {age} ago");
    ensure!(client.history(&user, false).await?.content[0].viewed, "the entry was not marked");

    let created = transport.create(&operator, id).await?;
    completed(transport, &operator, created).await?;
    let page = client.history(&user, true).await?;
    let entry = &page.content[0];
    ensure!(page.total_elements == 2 && entry.id == created, "{page:?}");
    let order = entry.data.as_ref().and_then(|data| data.get(ORDER.0));
    ensure!(order.is_some_and(|order| order == ORDER.1), "{entry:?}");
    Ok(())
}

async fn sign_in_operator(client: &Client) -> Result<String> {
    let id = format!("op-{}", Uuid::new_v4());
    let password = format!("correct horse {id}");
    client.create_identity(&id).await?;
    client.set_password(&id, &password).await?;
    let request = auth::TokenRequest {
        grant_type: "password".parse()?,
        username: Some(id),
        password: Some(password),
        ..Default::default()
    };
    Ok(client.tokens(&client.backoffice, request).await?.access_token)
}

/// Asks until the notification has gone out.
async fn completed(transport: &impl Transport, operator: &str, id: Uuid) -> Result<()> {
    for _ in 0..600 {
        let progress = transport.progress(operator, id).await?;
        if progress.completed {
            ensure!(progress.sent >= 1, "{progress:?}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the notification has not gone out within a minute")
}

/// A number of ten digits in Washington, which nobody has had in this run.
fn new_phone() -> String {
    format!("+1202{}", 2_000_000 + Uuid::new_v4().as_u128() % 8_000_000)
}
