//! A service that is connected: it registers a user with auth, signs the user in, and registers the device with push.
use std::{env, time::SystemTime};

use anyhow::{Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use gatepost_client::{auth, push};
use reqwest::header::{AUTHORIZATION, HeaderMap};

/// oas3-gen knows no HTTP Basic: the credentials are a default header of the HTTP client.
fn auth_as(client: &str, secret: &str) -> Result<auth::AuthClient> {
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{client}:{secret}")));
    let headers = HeaderMap::from_iter([(AUTHORIZATION, basic.try_into()?)]);
    let http = reqwest::Client::builder().default_headers(headers).build()?;
    auth::AuthClient::with_client(env::var("GATEPOST_AUTH_URL")?, http)
}

async fn register(id: &str, phone: &str) -> Result<auth::TokenPair> {
    let internal = auth_as("internal", &env::var("GATEPOST_INTERNAL_SECRET")?)?;
    let mut identity = auth::CreateIdentityRequest::default();
    identity.body.id = id.into();
    identity.body.phone = phone.into();
    match internal.create_identity(identity).await? {
        auth::ApiResponse::Ok(_) => {}
        other => bail!("the identity was not created: {other:?}"),
    }

    let backend = auth_as("backend", &env::var("GATEPOST_BACKEND_SECRET")?)?;
    let mut tokens = auth::GenerateTokensRequest::default();
    tokens.body.grant_type = "auth".parse()?;
    tokens.body.auth_id = Some(id.into());
    match backend.generate_tokens(tokens).await? {
        auth::ApiResponse::Ok(response) => Ok(response.body),
        other => bail!("no tokens were issued: {other:?}"),
    }
}

async fn save_device(access_token: &str, token: &str) -> Result<()> {
    let client = push::PushClient::with_base_url(env::var("GATEPOST_PUSH_URL")?)?.with_user_application(access_token);
    let mut device = push::SavePushTokenRequest::default();
    device.body.token = token.into();
    device.body.expiration = "2035-01-20T12:00:00Z".parse()?;
    match client.save_push_token(device).await? {
        push::ApiResponse::NoContent(_) => Ok(()),
        other => bail!("the device was not saved: {other:?}"),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let pair = register(&format!("u-{now}"), &format!("+1202{}", 2_000_000 + now % 8_000_000)).await?;
    save_device(&pair.access_token, &format!("device-{now}")).await
}
