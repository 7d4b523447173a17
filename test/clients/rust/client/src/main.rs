use gatepost_client::walk::{Client, walk};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::from_environment()?;
    walk(&client, &client).await
}
