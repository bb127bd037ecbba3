using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Checks the options of a client by opening one, which sends nothing.</summary>
internal sealed class HostedClientValidation(IServiceProvider services) : IValidateOptions<HostedClientOptions>
{
    /// <inheritdoc/>
    public ValidateOptionsResult Validate(string? name, HostedClientOptions options)
    {
        var client = string.IsNullOrEmpty(name) ? "the client without a name" : $"client '{name}'";
        if ((options.Address is null) == (options.Server is null))
        {
            return ValidateOptionsResult.Fail(
                $"{client}: set either Address, such as http://127.0.0.1:50051, or Server, the name of a server of this host");
        }

        try
        {
            _ = HostedClient.Open(services, options).DisposeAsync().AsTask();
            return ValidateOptionsResult.Success;
        }
        catch (Exception error) when (error is ArgumentException or IOException or InvalidOperationException)
        {
            return ValidateOptionsResult.Fail($"{client}: {error.Message}");
        }
    }
}
