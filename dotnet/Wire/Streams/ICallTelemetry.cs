namespace Quantra.Client.Wire;

/// <summary>Records the outcome of one call, or of one request of a session.</summary>
internal interface ICallTelemetry
{
    void Retry();

    void Succeed();

    void Fail(string reason);
}
