namespace Quantra.Client.Tests;

/// <summary>Sessions at a server.</summary>
public sealed class GrpcSessionTests(PredictorFixture fixture) : SessionTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Grpc;

    [Fact]
    public async Task Views_of_a_client_share_its_sessions_unless_they_send_other_headers()
    {
        var token = TestContext.Current.CancellationToken;
        var request = new SessionRequest("small", SessionData.Split(Fixture, 1).Before) { SessionId = "mine" };
        await using var client = new QuantraClient(Fixture.Address);
        await using var session = await client.WithTimeout(TimeSpan.FromSeconds(20)).OpenSessionAsync(request, token);
        var twice = await Assert.ThrowsAsync<QuantraException>(() => client.OpenSessionAsync(request, token));
        Assert.Equal(QuantraReason.DuplicateId, twice.Reason);
        await using var other = await client.WithHeader("x-request-id", "other").OpenSessionAsync(request, token);
    }

    protected override Task<IStockPredictor> OpenAsync() => Task.FromResult<IStockPredictor>(new QuantraClient(Fixture.Address));
}
